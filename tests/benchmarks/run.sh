#!/bin/sh
# What `make bench` calls, with the Python to measure: run.sh PYTHON [SUITE ...]
set -e
cd "$(dirname "$0")/../.."
python=${1:-python3}
[ $# -eq 0 ] || shift
exec "$python" -m tests.benchmarks "$@"
