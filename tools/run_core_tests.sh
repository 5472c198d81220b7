#!/usr/bin/env bash
# Runs test programs one after another, from the root of the repository, each within a number of seconds; shows the output of
# those that fail. Usage: tools/run_core_tests.sh SECONDS PROGRAM...
set -uo pipefail
seconds=$1
shift
if [ $# -eq 0 ]; then
  echo "no test program selected" >&2
  exit 1
fi
failed=()
for program in "$@"; do
  log=$program.log
  started=${EPOCHREALTIME/[.,]/}
  if timeout --kill-after=10 "$seconds" "$program" >"$log" 2>&1; then
    verdict=passed
  else
    code=$?
    verdict="FAILED, exit status $code"
    [ $code -eq 124 ] && verdict="FAILED, not done after $seconds s"
    failed+=("$program")
  fi
  counted=$(grep -oE '[0-9]+ tests? from' "$log" | head -1)
  milliseconds=$(((${EPOCHREALTIME/[.,]/} - started) / 1000))
  printf '  %-45s %s (%s%d ms)\n' "${program#*tests/core/}" "$verdict" "${counted:+${counted% from}, }" "$milliseconds"
  [ "$verdict" = passed ] || tail -n 200 "$log"
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "  $# test programs passed"
