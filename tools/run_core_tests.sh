#!/usr/bin/env bash
# Runs test programs one after another, from the root of the repository, each within a number of seconds; shows the output of
# those that fail. One that ends with 77 says in its last line why it cannot run here. TFS_TEST_SECONDS names a folder that keeps what they
# took. Usage: tools/run_core_tests.sh SECONDS PROGRAM...
set -uo pipefail
seconds=$1
shift
if [ $# -eq 0 ]; then
  echo "no test program selected" >&2
  exit 1
fi
failed=()
skipped=0
for program in "$@"; do
  log=$program.log
  started=${EPOCHREALTIME/[.,]/}
  if timeout --kill-after=10 "$seconds" "$program" >"$log" 2>&1; then
    verdict=passed
  else
    code=$?
    verdict="FAILED, exit status $code"
    [ $code -eq 124 ] && verdict="FAILED, not done after $seconds s"
    if [ $code -eq 77 ]; then
      verdict="SKIPPED: $(tail -n 1 "$log")"
      skipped=$((skipped + 1))
    else
      failed+=("$program")
    fi
  fi
  counted=$(grep -oE '[0-9]+ tests? from' "$log" | head -1)
  milliseconds=$(((${EPOCHREALTIME/[.,]/} - started) / 1000))
  printf '  %-45s %s (%s%d ms)\n' "${program#*tests/core/}" "$verdict" "${counted:+${counted% from}, }" "$milliseconds"
  if [ -n "${TFS_TEST_SECONDS:-}" ]; then
    mkdir -p "$TFS_TEST_SECONDS"
    printf '["core", "tests/core/%s", %d.%03d]\n' "${program#*tests/core/}" $((milliseconds / 1000)) $((milliseconds % 1000)) \
      >>"$TFS_TEST_SECONDS/core.jsonl"
  fi
  [[ "$verdict" = FAILED* ]] && tail -n 200 "$log"
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "  $(($# - skipped)) test programs passed$([ $skipped -eq 0 ] || echo ", $skipped skipped")"
