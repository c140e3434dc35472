# What the guest tests share. Each test is a script for the guest's sh; it
# prints what failed and ends with 1 if anything did.
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

finish() {
  [ "$failures" -eq 0 ] || exit 1
  echo "$0: all passed"
  exit 0
}

# STATUS WORD COMMAND...: the command ends with that status and says WORD on
# stderr.
expect() {
  status=$1 word=$2
  shift 2
  "$@" >/tmp/stdout 2>/tmp/stderr
  got=$?
  [ "$got" -eq "$status" ] || fail "$*: status $got instead of $status: $(cat /tmp/stderr)"
  grep -qF -e "$word" /tmp/stderr || fail "$*: no \"$word\" in: $(cat /tmp/stderr)"
}

# CPU REGISTER: a register as 16 hexadecimal digits, without lbr.
register() {
  dd if=/dev/cpu/$1/msr bs=8 count=1 iflag=skip_bytes skip=$(($2)) 2>/dev/null |
    od -An -t x8 | tr -d ' \n'
}

# CPU REGISTER VALUE: writes a value below 0x10000, without lbr.
set_register() {
  printf "\\x$(printf %02x $(($3 & 255)))\\x$(printf %02x $(($3 >> 8)))\\0\\0\\0\\0\\0\\0" |
    dd of=/dev/cpu/$1/msr bs=8 count=1 oflag=seek_bytes seek=$(($2)) conv=notrunc 2>/dev/null
}

# CPU KEY: what lbr's header line says of a key.
header() {
  lbr dump -C "$1" --json 2>/dev/null | sed -n "1s/.*\"$2\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# SECONDS COMMAND...: whether the command succeeds within that time.
within() {
  left=$(($1 * 20))
  shift
  while [ "$left" -gt 0 ]; do
    "$@" && return 0
    usleep 50000
    left=$((left - 1))
  done
  return 1
}

# CPU STATE: recording is true or false there.
recording_is() {
  [ "$(header "$1" recording)" = "$2" ]
}
