# `lbr time` with the registers of a CPU. CPU is the model.
. /work/lib.sh

# mov ecx, 3; dec ecx; jnz -4: 7 instructions, 2 branches taken.
loop="b9 03 00 00 00 ff c9 75 fc"
control_before=$(header 1 control)
select_before=

# Whether no lbr runs any more. Those that ended are left to the guest's init.
gone() {
  for pid in $(pidof lbr); do
    grep -q '^State:.*Z' /proc/$pid/status || return 1
  done
}

# CPU REGISTER BEFORE: whether lbr has armed the CPU, which is seen by its filter.
recording_or_filter() {
  [ -z "$2" ] && { usleep 1500000; return 0; }
  [ "$(register "$1" "$2")" != "$3" ]
}

# Blocks: entry, exit, executions; no bracket among them.
lbr time -C 1 --backend msr --hex "$loop" --loop 1 --repeat 20 --json >/tmp/out 2>/tmp/stderr ||
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

# The same by counters of the kernel's perf events: what the bracket counts of itself is taken off,
# and the guest's counters are exact. JNZ is three branches, of which the model mispredicts the last.
lbr time -C 1 --backend perf --hex "$loop" --loop 1 --repeat 50 --json >/tmp/out 2>/tmp/stderr ||
  fail "perf: status $?: $(cat /tmp/stderr)"
grep -q '"source":"perf","modelled":true' /tmp/out || fail "not from counters: $(head -n1 /tmp/out)"
for count in cycles_per_iteration:7 counted_instructions_per_iteration:7 counted_branches_per_iteration:3; do
  grep -q "\"${count%:*}\":{\"max\":${count#*:}.0,\"median\":${count#*:}.0,\"min\":${count#*:}.0," /tmp/out ||
    fail "not $count: $(head -n1 /tmp/out)"
done
# Where branch stacks carry cycles, they tell those of the blocks: mov, dec, jnz; dec, jnz; dec, jnz and
# the closing jump.
cycles=$(sed -n 's/.*"kind":"block".*"min":\([^,]*\).*/\1/p' /tmp/out | sort | tr '\n' ' ')
case $CPU in
  06_3C | 19_11) [ "$cycles" = "null null null " ] || fail "cycles of blocks: $cycles" ;;
  *) [ "$cycles" = "2 3 3 " ] || fail "cycles of blocks: $cycles: $(cat /tmp/out)" ;;
esac
echo 'tester:x:1000:1000::/:/bin/sh' >/etc/passwd
[ -e /bin/sh ] || ln -s busybox /bin/sh
echo 2 >/proc/sys/kernel/perf_event_paranoid
su -s /bin/sh tester -c "lbr time --hex '$loop' --repeat 5 --json" >/tmp/out 2>/tmp/stderr
grep -q '"source":"perf"' /tmp/out || fail "an ordinary user's counters: $(cat /tmp/stderr)"
echo 3 >/proc/sys/kernel/perf_event_paranoid
expect 4 'kernel.perf_event_paranoid is 3' su -s /bin/sh tester -c "lbr time --backend perf --hex 90"
echo 0 >/sys/bus/event_source/devices/cpu/rdpmc
expect 4 'echo 1 > /sys/bus/event_source/devices/cpu/rdpmc' lbr time --backend perf --hex 90
echo 1 >/sys/bus/event_source/devices/cpu/rdpmc

# More branches than records: the last ones, and it says so.
lbr time -C 1 --hex "b9 64 00 00 00 ff c9 75 fc" --loop 1 --repeat 5 >/tmp/out 2>/tmp/stderr || fail "overflow: $(cat /tmp/stderr)"
grep -q 'more branches than the' /tmp/out || fail "nothing about the depth: $(cat /tmp/out)"

# Nothing is nothing.
lbr time -C 1 --hex "" --repeat 5 --json >/tmp/out 2>/tmp/stderr || fail "nothing: $(cat /tmp/stderr)"
[ "$(wc -l </tmp/out)" = 1 ] || fail "blocks of nothing: $(cat /tmp/out)"

# Far branches between the two jumps: a REP STOSB of 3.9 million rounds (lea rdi, [rsp - 4000000])
# lasts longer than a tick of the kernel's clock.
lbr time -C 1 --hex "48 8d bc 24 00 f7 c2 ff b9 60 82 3b 00 f3 aa" --loop 1 --repeat 3 --stepped 0 --warm-up 1 \
  --json >/tmp/out 2>/tmp/stderr
interrupted=$(sed -n '1s/.*"interrupted":\([0-9]*\).*/\1/p' /tmp/out)
counted=$(sed -n '1s/.*"runs":\([0-9]*\).*/\1/p' /tmp/out)
[ "${interrupted:-0}" -gt 0 ] || fail "no run was interrupted: $(cut -c1-900 /tmp/out) $(cat /tmp/stderr)"
[ "$counted" -gt 0 ] || grep -q 'no run counts' /tmp/stderr || fail "no runs and no word: $(cat /tmp/stderr)"
echo "interrupted: $interrupted of 6, of which of the code $((3 - counted))"

# Somebody else takes the filter: its runs are dropped, and it is left as it is.
select=0x1c8
case $CPU in
  06_8F) select= ;;
  19_11) select=0xc000010e ;;
esac
if [ -n "$select" ]; then
  # The kernel's branch stacks may have left there what lbr writes.
  set_register 1 $select 0
  select_before=$(register 1 $select)
  lbr time -C 1 --hex "$loop" --loop 1 --repeat 1000000 --stepped 0 --warm-up 1 --json >/tmp/out 2>/tmp/stderr &
  pid=$!
  within 30 recording_or_filter 1 $select "$select_before" || fail "it never armed"
  set_register 1 $select 5
  # Past what is tried before the runs that count.
  sleep 3
  kill -INT $pid
  wait $pid
  grep -q 'something else changed the branch filter' /tmp/stderr || fail "foreign filter: $(cat /tmp/stderr)"
  foreign=$(sed -n '1s/.*"foreign":\([0-9]*\).*/\1/p' /tmp/out)
  [ "${foreign:-0}" -gt 0 ] || fail "no run was dropped for the foreign filter"
  [ "$(register 1 $select)" = 0000000000000005 ] || fail "the foreign filter is gone"
  set_register 1 $select $((0x$select_before))
fi

# Ended at any moment, the registers are as before.
delay=20000
for signal in INT TERM HUP KILL KILL KILL KILL; do
  lbr time -C 1 --hex "$loop" --loop 1 --repeat 1000000 >/tmp/out 2>/tmp/stderr &
  pid=$!
  within 30 recording_or_filter 1 "$select" "$select_before" || fail "it never armed"
  usleep $delay
  delay=$((delay + 7919))
  kill -$signal $pid
  wait $pid
  within 20 gone || fail "$signal: a process stays behind: $(ps)"
  recording_is 1 false || fail "$signal: recording is on"
  [ "$(header 1 control)" = "$control_before" ] || fail "$signal: control is $(header 1 control)"
  [ -z "$select" ] || [ "$(register 1 $select)" = "$select_before" ] || fail "$signal: the filter is $(register 1 $select)"
done
# A run that does not end while recording is on.
lbr time -C 1 --hex "49 ff 06 49 81 3e 20 00 00 00 73 fe" --loop 1 --timeout 60 --stepped 0 --warm-up 1 >/tmp/out 2>/tmp/stderr &
pid=$!
usleep 1500000
kill -INT $pid
wait $pid
recording_is 1 false || fail "stopped in the middle: recording is on"
[ "$(header 1 control)" = "$control_before" ] || fail "stopped in the middle: control is $(header 1 control)"

# Hostile code, and the registers are as before.
expect 1 'stopped at +0x0' lbr time -C 1 --hex "eb fe" --timeout 2
expect 1 'SIGSEGV at +0x1, touching 0x10' lbr time -C 1 --hex "90 48 8b 04 25 10 00 00 00"
expect 1 'status 3 at +0xa' lbr time -C 1 --hex "b8 3c 00 00 00 bf 03 00 00 00 0f 05"
recording_is 1 false || fail "recording is on"
[ "$(header 1 control)" = "$control_before" ] || fail "control is $(header 1 control)"
[ "$(lbr dump -C 1 --json | grep -c '"empty":true')" -gt 0 ] || fail "records are left"
within 20 gone || fail "a process stays behind"
finish
