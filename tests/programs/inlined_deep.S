// A function into which NESTED calls were inlined, each into the one before, all of them over all of its code.
.globl around
.text
around: ret
.Lend:
.section .debug_abbrev,"",@progbits
.uleb128 1                      // DW_TAG_compile_unit, with children
.uleb128 0x11
.byte 1
.byte 0x10, 0x17, 0x11, 1, 0x12, 7, 0, 0 // stmt_list, low_pc, high_pc
.uleb128 2                      // DW_TAG_subprogram of a name
.uleb128 0x2e
.byte 0
.byte 3, 8, 0, 0
.uleb128 3                      // DW_TAG_subprogram of a name with code, with children
.uleb128 0x2e
.byte 1
.byte 3, 8, 0x11, 1, 0x12, 7, 0, 0
.uleb128 4                      // DW_TAG_inlined_subroutine: abstract_origin, low_pc, high_pc, with children
.uleb128 0x1d
.byte 1
.byte 0x31, 0x13, 0x11, 1, 0x12, 7, 0, 0
.byte 0
.section .debug_info,"",@progbits
.Linfo: .long .Linfo_end - .Lunit
.Lunit: .short 4
.long .debug_abbrev
.byte 8
.uleb128 1
.long .debug_line
.quad around, .Lend - around
.Lname:
.uleb128 2
.asciz "inlined"
.uleb128 3
.asciz "around"
.quad around, .Lend - around
.rept NESTED
.uleb128 4
.long .Lname - .Linfo
.quad around, .Lend - around
.endr
.fill NESTED + 2
.Linfo_end:
.section .debug_line,"",@progbits
.long .Lline_end - .Lline
.Lline: .short 4
.long .Lrows - .Lheader
.Lheader: .byte 1, 1, 1, -5, 14, 13
.byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
.byte 0
.asciz "a.c"
.byte 0, 0, 0
.byte 0
.Lrows: .byte 0, 9, 2           // set_address
.quad around
.byte 1, 2                      // copy, advance_pc
.uleb128 .Lend - around
.byte 0, 1, 1                   // end_sequence
.Lline_end:
