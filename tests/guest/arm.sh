# Arming and giving back, on every CPU that has a filter. LOOP is the address
# of the loop in /work/loop, CPU the model.
. /work/lib.sh

from=$(printf '0x%x' $((LOOP + 3)))
depth=$(lbr probe --json | sed -n 's/.*"depth":\([0-9]*\).*/\1/p' | head -n1)
control_before=$(header 1 control)
select_before=$(header 1 select)

# Everything as before: control and filter, and no record left.
given_back() {
  recording_is 1 false || fail "$1: recording is on"
  [ "$(header 1 control)" = "$control_before" ] || fail "$1: control is $(header 1 control), was $control_before"
  [ "$(header 1 select)" = "$select_before" ] || fail "$1: filter is $(header 1 select), was $select_before"
  empty=$(lbr dump -C 1 --json | grep -c '"empty":true')
  [ "$empty" = "$depth" ] || fail "$1: $empty of $depth records are empty"
}

# Another user's filter must come back; not where the filter is the control
# register as well.
case $CPU in
  06_8F) ;;
  19_11) ;;
  *)
    # The kernel's own bit, BTF, and a stale filter.
    set_register 1 0x1d9 2
    set_register 1 0x1c8 0x1c4
    control_before=0x2 select_before=0x1c4
    [ "$(register 1 0x1c8)" = 00000000000001c4 ] || fail "the test cannot set registers"
    ;;
esac

# The loop's branch in every slot, and the taint said before the first write.
lbr dump -C 1 --arm any,u,no_far --for 1000 --json -- /work/loop >/tmp/dump 2>/tmp/stderr ||
  fail "dump --arm: status $?: $(cat /tmp/stderr)"
found=$(grep -c "\"from\":\"$from\",\"to\":\"$LOOP\"" /tmp/dump)
[ "$found" = "$depth" ] || fail "$found of $depth records are the loop's: $(cat /tmp/dump)"
given_back "dump --arm"
case $CPU in
  06_8F | 19_11) ;;
  *)
    [ "$(register 1 0x1d9)" = 0000000000000002 ] || fail "DEBUGCTL is $(register 1 0x1d9)"
    grep -q 'was set before' /tmp/stderr || fail "the stale filter is not mentioned"
    ;;
esac

# Without the ring filter the kernel's own way out fills the ring.
lbr dump -C 1 --arm any --for 500 --json -- /work/loop >/tmp/dump 2>/tmp/stderr ||
  fail "dump --arm any: status $?: $(cat /tmp/stderr)"
grep -q '"to":"0xffff' /tmp/dump || fail "no record of the kernel: $(cat /tmp/dump)"
given_back "dump --arm any"

# A program that ends, and one that is not there.
expect 0 'ended with status 3' lbr dump -C 1 --arm any,u -- sh -c 'exit 3'
expect 2 'no-such-program' lbr dump -C 1 --arm any,u -- no-such-program
given_back "a program that ended"

# Signals end the wait; SIGKILL ends everything but the keeper.
for signal in INT TERM KILL; do
  lbr dump -C 1 --arm any,u --for 60000 -- /work/loop >/tmp/dump 2>/tmp/stderr &
  pid=$!
  within 30 recording_is 1 true || fail "$signal: not armed: $(cat /tmp/stderr)"
  kill -"$signal" "$pid"
  wait "$pid"
  status=$?
  case $signal in
    KILL) [ "$status" -eq 137 ] || fail "KILL: status $status" ;;
    *) [ "$status" -eq 0 ] || fail "$signal: status $status: $(cat /tmp/stderr)" ;;
  esac
  within 30 recording_is 1 false || fail "$signal: recording is still on"
  within 30 sh -c '! pidof lbr >/dev/null' || fail "$signal: a keeper stays behind"
  given_back "$signal"
  killall loop 2>/dev/null
done

# Somebody else's recording is refused, and lbr disarm ends it.
case $CPU in
  06_8F | 19_11) ;;
  *)
    set_register 1 0x1d9 3
    expect 3 'lbr disarm -C 1' lbr dump -C 1 --arm any,u
    [ "$(register 1 0x1d9)" = 0000000000000003 ] || fail "the other's recording was touched"
    lbr disarm -C 1 >/tmp/stdout || fail "disarm: status $?"
    grep -q 'CPU 1: recording was on (0x1d9 = 0x3, filter 0x1c8 = 0x1c4): switched off' /tmp/stdout ||
      fail "disarm said: $(cat /tmp/stdout)"
    [ "$(register 1 0x1d9)" = 0000000000000002 ] || fail "disarm left $(register 1 0x1d9)"
    [ "$(register 1 0x1c8)" = 0000000000000000 ] || fail "disarm left a filter"
    ;;
esac
lbr disarm >/tmp/stdout || fail "disarm: status $?"
[ "$(grep -c 'nothing to do' /tmp/stdout)" = 2 ] || fail "a second disarm said: $(cat /tmp/stdout)"
finish
