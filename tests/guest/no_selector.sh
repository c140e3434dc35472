# Nothing came of a recording through perf events, and why: Linux's table of
# selectors for Nehalem (nhm_lbr_sel_map) has none for `call`, so that its driver
# filters everything out without a word.
. /work/lib.sh

# FILTER PERIOD WORD
says() {
  lbr record --backend perf -j "$1" -c "$2" -o /tmp/data -- busybox seq 1 20000 >/tmp/stdout 2>/tmp/stderr
  grep -qF -e "$3" /tmp/stderr || fail "-j $1 -c $2: no \"$3\" in: $(cat /tmp/stderr)"
}
says call,u 100003 "the kernel's driver has no selector for it on this CPU"
says any_call,u 100003 'not joined to the stack before'
says any_call,u 1000000000000 "before the kernel's first interrupt"
finish
