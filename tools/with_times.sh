#!/usr/bin/env bash
# Runs tests that record their seconds in a folder, then prints the slowest and the totals; ends with the status of the tests.
# Usage: tools/with_times.sh FOLDER PYTHON COMMAND...
set -uo pipefail
folder=$1 python=$2
shift 2
rm -rf "$folder"
status=0
# Around a make that holds back the output of its targets: see tests/support/progress.py.
TFS_TEST_PROGRESS=3 "$@" 3>&2 || status=$?
"$python" -m tests.support.slowest "$folder"
printf '%8d s  from start to end\n' "$SECONDS"
exit "$status"
