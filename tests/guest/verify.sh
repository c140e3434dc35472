# lbr verify on registers behind the msr driver. LIES are verified one after
# the other; what each came to goes to /out. KILLS verifications of a sound CPU
# are ended at random moments. Before and after, the registers are compared.
. /work/lib.sh

# Switches a lie on in the machine, `none` for none: every register is as after
# a reset then (lbr_msr::soft::machine).
lie() {
  printf %s "$1" | dd of=/dev/cpu/0/msr bs=512 conv=sync,notrunc oflag=seek_bytes \
    seek=$((0x4C425201)) 2>/dev/null
}

verify() {
  lbr verify -C 1 --write --backend msr --json
}

bases=$(lbr probe --json | sed -n '1s/.*"from_base":"\([^"]*\)","to_base":"\([^"]*\)","info_base":\("\([^"]*\)"\|null\).*/\1 \2 \4/p')
set -- $bases
from=$1 to=$2 info=$3
depth=$(lbr probe --json | sed -n '1s/.*"depth":\([0-9]*\).*/\1/p')
stride=1
[ "$CPU" = 19_11 ] && stride=2

# The registers of every record, and all others that verifying may change.
records=
i=0
while [ $i -lt "$depth" ]; do
  at=$((i * stride))
  records="$records $((from + at)) $((to + at)) ${info:+$((info + i))}"
  i=$((i + 1))
done
others="0x1c8 0x1c9 0x1d9 0x1dd 0x1de 0x1e0 0x14ce 0x14cf 0xc000010e 0xc000010f"
[ "$CPU" = 19_11 ] && others="$others 0x1db 0x1dc"

# Something in every record, in TOS, in the filter, and BTF, which is the
# kernel's.
furnish() {
  values=
  i=1
  for register in $records; do
    values="$values $register=$i"
    i=$((i + 1))
  done
  case $CPU in
    06_8F) values="$values 0x1dd=0x3333 0x1de=0x4444" ;;
    19_11) values="$values 0x1d9=2 0xc000010e=0x1c4" ;;
    *) values="$values 0x1c9=5 0x1c8=0x1c4 0x1d9=2 0x1dd=0x3333 0x1de=0x4444" ;;
  esac
  registers 1 $values
}

everything() {
  registers 1 $records $others
}

unchanged() {
  everything >/tmp/after
  cmp -s /tmp/before /tmp/after || fail "$1: $(diff /tmp/before /tmp/after)"
}

# A number below $1.
random() {
  echo $(($(od -An -N4 -tu4 /dev/urandom) % $1))
}

lie none || fail "the machine takes no lies"
furnish || fail "the test cannot set registers"
everything >/tmp/before
grep -q ' 0000000000000010$' /tmp/before || fail "the test cannot set registers: $(cat /tmp/before)"

start=$(cut -d' ' -f1 /proc/uptime)
verify >/out/none.json 2>/out/none.err
echo $? >/out/none.status
took=$(awk "BEGIN {print int(($(cut -d' ' -f1 /proc/uptime) - $start) * 1000) + 50}")
unchanged "after a verification"

# Without --write nothing is written.
lbr verify -C 1 --backend msr --json >/out/reads.json 2>/out/reads.err
echo $? >/out/reads.status
unchanged "after a verification that only reads"

n=0
early=0
while [ $n -lt "${KILLS:-0}" ]; do
  case $((n % 3)) in
    0) signal=INT ;;
    1) signal=TERM ;;
    *) signal=KILL ;;
  esac
  lbr verify -C 1 --write --backend msr --json >/tmp/killed 2>&1 &
  pid=$!
  usleep $(($(random $took) * 1000))
  kill -$signal $pid 2>/dev/null && early=$((early + 1))
  wait $pid
  # The keeper of one that was killed.
  within 30 sh -c '! pidof lbr >/dev/null' || fail "$signal: a keeper stays behind"
  unchanged "SIG$signal"
  n=$((n + 1))
done
echo "$early of $n ended early, within $took ms" >/out/kills

for lie in $LIES; do
  lie "$lie" || fail "the machine does not know $lie"
  verify >/out/$lie.json 2>/out/$lie.err
  echo $? >/out/$lie.status
done
lie none
finish
