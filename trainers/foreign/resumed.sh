#!/bin/sh
# resumed.sh STOP COMMAND…: trains until step STOP, and resumes. With 0 it trains at once.
stop=$1
shift
if [ "$stop" = 0 ]; then exec "$@"; fi
"$@" --stop "$stop" && "$@" --resume
