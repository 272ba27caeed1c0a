#!/bin/sh
# cuda_engine.sh FOLDER CODE STEPS: compiles cuda_engine.cu for CODE, such as sm_90 (machine code) or compute_90 (PTX), and runs it.
set -e
PATH=$PATH:/usr/local/cuda/bin
mkdir -p "$1"
nvcc -O2 -cudart static -gencode "arch=compute_${2#*_},code=$2" -o "$1/engine" "$(dirname "$0")/cuda_engine.cu"
exec "$1/engine" "$3"
