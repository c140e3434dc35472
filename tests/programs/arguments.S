# Calls a function from several others, with arguments that are known.
	.intel_syntax noprefix
	.macro function name
	.globl \name
	.type \name, @function
\name:
	.endm
	.text

# Five times, RDI from 5 down to 1, RSI 100.
function _start
	mov ebx, 5
1:	mov edi, ebx
	mov esi, 100
	mov edx, 3
	xor ecx, ecx
	xor r8d, r8d
	xor r9d, r9d
	call work
	dec ebx
	jnz 1b
	call indirect
	call conditional
	call falls
	mov eax, 60
	xor edi, edi
	syscall
	.size _start, . - _start

# Once by an indirect call.
function indirect
	lea rax, [rip + work]
	mov rdi, -1
	mov esi, 7
	mov r9d, 9
	call rax
	ret
	.size indirect, . - indirect

# Once by a conditional jump, which work returns from to the caller.
function conditional
	mov edi, 33
	test ecx, ecx
	jz work
	ret
	.size conditional, . - conditional

# Once without a branch: nothing is recorded there.
function falls
	mov edi, 44
	.size falls, . - falls
function work
	lea eax, [rdi + 1]
	ret
	.size work, . - work
	.section .note.GNU-stack, "", @progbits
