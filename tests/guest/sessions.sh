# Two recorders of one CPU, keepers that others signal, recorders that are
# killed at any moment, as often as KILLS says. LOOP is the address of the loop
# in /work/loop, CPU the model.
. /work/lib.sh

depth=$(lbr probe --json | sed -n 's/.*"depth":\([0-9]*\).*/\1/p' | head -n1)
# The kernel's own bit, BTF, and a stale filter.
set_register 1 0x1d9 2
set_register 1 0x1c8 0x1c4

# NAME...: the processes that run; what has ended may wait for the guest's init.
running() {
  for process in $(pidof "$@"); do
    grep -q '^State:.Z' "/proc/$process/status" || echo "$process"
  done
}
is_armed() { [ -n "$(running lbr-keeper)" ]; }
all_ended() { [ -z "$(running lbr lbr-keeper)" ]; }

# Everything as before: control and filter, no record left, and no process.
given_back() {
  within 60 all_ended || fail "$1: a process stays behind"
  [ "$(register 1 0x1d9)" = 0000000000000002 ] || fail "$1: control is $(register 1 0x1d9)"
  [ "$(register 1 0x1c8)" = 00000000000001c4 ] || fail "$1: filter is $(register 1 0x1c8)"
  empty=$(lbr dump -C 1 --json | grep -c '"empty":true')
  [ "$empty" = "$depth" ] || fail "$1: $empty of $depth records are empty"
}

# Starts a recorder in the background, with the program, and waits for its keeper.
record() {
  rm -f /tmp/first
  lbr record -C 1 -F 5000 -o /tmp/first -- /work/loop >/tmp/stdout 2>/tmp/said &
  pid=$!
  within 60 is_armed || fail "no recording: $(cat /tmp/said)"
}

# The second is told who has the registers, also while the first reads them with
# recording off, and the first loses nothing by it.
record
for n in 1 2 3 4 5; do
  expect 3 'CPU 1 is already recording branches: another lbr' lbr dump -C 1 --arm any,u
  expect 3 'CPU 1 is already recording branches: another lbr' lbr record -C 1 --backend msr -o /tmp/second -- true
done
killall loop
wait "$pid"
status=$?
[ "$status" -eq 143 ] || fail "two at once: the first ended with $status: $(cat /tmp/said)"
lbr report -i /tmp/first >/dev/null || fail "two at once: the first's file cannot be read"
given_back "two at once"
echo "two at once: 10 refused"

# Nobody but root ends a keeper, and what root sends to end a program does not.
record
keeper=$(running lbr-keeper)
for signal in KILL TERM STOP; do
  su user -c "kill -$signal $keeper" 2>/dev/null && fail "another user may send $signal to the keeper"
done
for signal in HUP INT QUIT TERM; do kill -$signal "$keeper" || fail "the keeper is gone"; done
kill -KILL "$pid"
wait "$pid"
given_back "a keeper that is signalled"
killall loop 2>/dev/null
echo "a keeper that is signalled: 7 signals"

# From before the first access to long after it.
kills=0 files=0 seed=${SEED:-1}
while [ "$kills" -lt "${KILLS:-10}" ]; do
  rm -f /tmp/first
  lbr record -C 1 -F 5000 -o /tmp/first -- /work/loop >/tmp/stdout 2>/tmp/said &
  pid=$!
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  usleep $((seed / 65536% 700 * 1000))
  kill -KILL "$pid"
  wait "$pid"
  given_back "kill $kills"
  killall loop 2>/dev/null
  kills=$((kills + 1))
  [ ! -s /tmp/first ] || {
    files=$((files + 1))
    lbr script -i /tmp/first >/dev/null 2>/tmp/said || fail "kill $kills: $(cat /tmp/said)"
  }
  [ $((kills % 10)) -ne 0 ] || echo "$kills kills of record, $files of them with a file"
done
finish
