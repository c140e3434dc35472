# Core 2: no filter register. The ring can be read and armed, and holds the
# kernel's branches; user-only recording is refused.
. /work/lib.sh

expect 3 'no filter register' lbr dump -C 1 --arm any,u,no_far
lbr dump -C 1 --arm any,u,k --for 50 --json -- /work/loop >/tmp/dump 2>/tmp/stderr ||
  fail "dump --arm any,u,k: status $?: $(cat /tmp/stderr)"
grep -q '"to":"0xffff' /tmp/dump || fail "no record of the kernel: $(cat /tmp/dump)"
[ "$(register 1 0x1d9)" = 0000000000000000 ] || fail "DEBUGCTL is $(register 1 0x1d9)"
lbr dump -C 1 >/tmp/stdout || fail "dump: status $?"
finish
