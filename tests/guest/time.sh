# `lbr time` with the registers of a CPU. CPU is the model.
. /work/lib.sh

# mov ecx, 3; dec ecx; jnz -4: 7 instructions, 2 branches taken.
loop="b9 03 00 00 00 ff c9 75 fc"
control_before=$(header 1 control)

# Blocks: entry, exit, executions; no bracket among them.
lbr time -C 1 --backend msr --hex "$loop" --repeat 20 --json >/tmp/out 2>/tmp/stderr ||
  fail "time: status $?: $(cat /tmp/stderr)"
head -n1 /tmp/out | grep -q '"source":"msr"' || fail "not from registers: $(head -n1 /tmp/out)"
head -n1 /tmp/out | grep -q '"instructions":7,"branches_taken":2,"branches_not_taken":1' ||
  fail "counts: $(head -n1 /tmp/out)"
[ "$(grep -c '"kind":"block"' /tmp/out)" = 3 ] || fail "not three blocks: $(cat /tmp/out)"
for ends in '"entry":{"at":"code","offset":"0x0"},"exit":{"at":"code","offset":"0x7"}' \
  '"entry":{"at":"code","offset":"0x5"},"exit":{"at":"code","offset":"0x7"}' \
  '"entry":{"at":"code","offset":"0x5"},"exit":{"at":"end"}'; do
  grep -qF "$ends" /tmp/out || fail "no block $ends: $(cat /tmp/out)"
done
# Where records carry cycles they are a model's, and say so; elsewhere absent.
case $CPU in
  06_3C | 19_11)
    head -n1 /tmp/out | grep -q '"modelled":null' || fail "modelled: $(head -n1 /tmp/out)"
    head -n1 /tmp/out | grep -q '"cycles_per_iteration":null' || fail "cycles were invented"
    [ "$(grep '"kind":"block"' /tmp/out | grep -c '"min":null')" = 3 ] || fail "cycles of blocks: $(cat /tmp/out)"
    ;;
  *)
    head -n1 /tmp/out | grep -q '"modelled":true' || fail "not marked as modelled: $(head -n1 /tmp/out)"
    # The model counts instructions: 7, and the closing jump that the bracket of nothing has as well.
    head -n1 /tmp/out | grep -q '"cycles_per_iteration":{"max":7.0,"median":7.0,"min":7.0,' ||
      fail "cycles: $(head -n1 /tmp/out)"
    ;;
esac

# More branches than records: the last ones, and it says so.
lbr time -C 1 --hex "b9 64 00 00 00 ff c9 75 fc" --repeat 5 >/tmp/out 2>/tmp/stderr || fail "overflow: $(cat /tmp/stderr)"
grep -q 'more branches than the' /tmp/out || fail "nothing about the depth: $(cat /tmp/out)"

# Nothing is nothing.
lbr time -C 1 --hex "" --repeat 5 --json >/tmp/out 2>/tmp/stderr || fail "nothing: $(cat /tmp/stderr)"
[ "$(wc -l </tmp/out)" = 1 ] || fail "blocks of nothing: $(cat /tmp/out)"

# Hostile code, and the registers are as before.
expect 1 'stopped at +0x0' lbr time -C 1 --hex "eb fe" --timeout 0.5
expect 1 'SIGSEGV at +0x1, touching 0x10' lbr time -C 1 --hex "90 48 8b 04 25 10 00 00 00"
expect 1 'status 3 at +0xa' lbr time -C 1 --hex "b8 3c 00 00 00 bf 03 00 00 00 0f 05"
recording_is 1 false || fail "recording is on"
[ "$(header 1 control)" = "$control_before" ] || fail "control is $(header 1 control)"
[ "$(lbr dump -C 1 --json | grep -c '"empty":true')" -gt 0 ] || fail "records are left"
within 5 sh -c '! pidof lbr >/dev/null' || fail "a process stays behind"
finish
