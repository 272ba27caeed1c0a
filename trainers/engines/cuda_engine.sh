#!/bin/sh
# cuda_engine.sh FOLDER CODE STEPS PRODUCTS: compiles cuda_engine.cu for CODE, such as sm_90 (machine code) or compute_90 (PTX), and
# runs it. PRODUCTS is own or cublas; the library of torch's wheel is found where no other is.
set -e
PATH=$PATH:/usr/local/cuda/bin
mkdir -p "$1"
nvcc -O2 -cudart static -gencode "arch=compute_${2#*_},code=$2" -o "$1/engine" "$(dirname "$0")/cuda_engine.cu" -ldl
if [ "$4" = cublas ]; then
  wheel=$("${PYTHON:-python3}" -c "import glob, sys; print(':'.join(path for entry in sys.path for path in glob.glob(entry + '/nvidia/c*/lib')))")
  export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:/usr/local/cuda/lib64:$wheel"
fi
exec "$1/engine" "$3" "$1" "$4"
