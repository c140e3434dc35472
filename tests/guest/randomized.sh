# A program's pages are the same memory each time it runs, at other addresses:
# records tell where it runs, not where it ran first.
. /work/lib.sh

[ "$(cat /proc/sys/kernel/randomize_va_space)" -gt 0 ] || fail "addresses are not randomized"
seen=
for run in 1 2 3; do
  lbr dump -C 1 --arm any,u,no_far --for 1000 --json -- sh -c 'exec /work/pie >/tmp/address' >/tmp/dump ||
    fail "dump --arm: status $?"
  from=0x$(od -An -t x8 /tmp/address | tr -d ' \n' | sed 's/^0*//')
  found=$(grep -c "\"from\":\"$from\"" /tmp/dump)
  [ "$found" = 32 ] || fail "$found of 32 records are from $from: $(cat /tmp/dump)"
  case " $seen " in *" $from "*) fail "$from twice: nothing was shown" ;; esac
  seen="$seen $from"
done
finish
