# A kernel that is locked down: registers can be read, not written.
. /work/lib.sh

[ -e /sys/kernel/security/lockdown ] || mount -t securityfs securityfs /sys/kernel/security
# The machine itself needs an I/O port that a kernel locked down from the
# start would not give.
# A kernel with a driver for the counters sets a bit of it at the start.
before=$(register 1 0x1d9)
echo integrity >/sys/kernel/security/lockdown
grep -q '\[integrity\]' /sys/kernel/security/lockdown || fail "the kernel is not locked down"
expect 4 'kernel lockdown is active (integrity)' lbr dump -C 1 --arm any,u
lbr dump -C 1 >/dev/null || fail "dump under lockdown: status $?"
[ "$(register 1 0x1d9)" = "$before" ] || fail "DEBUGCTL is $(register 1 0x1d9)"
umount /sys/kernel/security
expect 4 'lockdown is active or msr.allow_writes=off' lbr dump -C 1 --arm any,u
finish
