#!/bin/sh
# Trains until step STOP and resumes: resumed.sh PYTHON ENGINE STOP OPTION… . A claim that judges it judges the resume.
python=$1 engine=$2 stop=$3
shift 3
"$python" "$engine" "$@" --stop "$stop" && "$python" "$engine" "$@" --resume
