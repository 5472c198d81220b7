#!/usr/bin/env bash
# Runs a command with its output in .build/log/NAME.log; shows the end of that when it fails. Usage: tools/quietly.sh NAME COMMAND...
set -uo pipefail
name=$1
shift
mkdir -p .build/log
log=.build/log/$name.log
started=$SECONDS
printf '  %s ... ' "$name"
if "$@" >"$log" 2>&1; then
  echo "done ($((SECONDS - started)) s)"
else
  code=$?
  echo "FAILED, exit status $code"
  echo "  command: $*"
  tail -n 60 "$log"
  echo "  all of it: $log"
  exit $code
fi
