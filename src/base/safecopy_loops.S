/* SPDX-License-Identifier: MIT
 * The instructions that may fault, each with a place to continue at. System V calling convention; GAS AT&T syntax.
 */
	.text

	.globl	uhca_safecopy_begin
	.hidden	uhca_safecopy_begin
uhca_safecopy_begin:

/* size_t uhca_safecopy_movsb(void *dst, const void *src, size_t n): bytes left. The residue is exact: rcx counts down. */
	.globl	uhca_safecopy_movsb
	.hidden	uhca_safecopy_movsb
	.type	uhca_safecopy_movsb, @function
uhca_safecopy_movsb:
	movq	%rdx, %rcx
	rep movsb
	.globl	uhca_safecopy_movsb_fault
	.hidden	uhca_safecopy_movsb_fault
uhca_safecopy_movsb_fault:
	movq	%rcx, %rax
	ret

/* size_t uhca_safecopy_words(void *dst, const void *src, size_t n): n is a multiple of 8; bytes left. */
	.globl	uhca_safecopy_words
	.hidden	uhca_safecopy_words
	.type	uhca_safecopy_words, @function
uhca_safecopy_words:
	testq	%rdx, %rdx
	jz	2f
1:	movq	(%rsi), %rax
	movq	%rax, (%rdi)
	addq	$8, %rsi
	addq	$8, %rdi
	subq	$8, %rdx
	jnz	1b
2:	.globl	uhca_safecopy_words_fault
	.hidden	uhca_safecopy_words_fault
uhca_safecopy_words_fault:
	movq	%rdx, %rax
	ret

/* size_t uhca_safecopy_lines(void *dst, const void *src, size_t n): n is a multiple of 64, not 0; bytes left, those of a line that was
 * copied in part included. */
	.globl	uhca_safecopy_lines
	.hidden	uhca_safecopy_lines
	.type	uhca_safecopy_lines, @function
uhca_safecopy_lines:
1:	movups	(%rsi), %xmm0
	movups	16(%rsi), %xmm1
	movups	32(%rsi), %xmm2
	movups	48(%rsi), %xmm3
	movups	%xmm0, (%rdi)
	movups	%xmm1, 16(%rdi)
	movups	%xmm2, 32(%rdi)
	movups	%xmm3, 48(%rdi)
	addq	$64, %rsi
	addq	$64, %rdi
	subq	$64, %rdx
	jnz	1b
	.globl	uhca_safecopy_lines_fault
	.hidden	uhca_safecopy_lines_fault
uhca_safecopy_lines_fault:
	movq	%rdx, %rax
	ret

/* int uhca_safe_load32(const uint32_t *src, uint32_t *value): 0, or 1 on a fault. */
	.globl	uhca_safe_load32
	.hidden	uhca_safe_load32
	.type	uhca_safe_load32, @function
uhca_safe_load32:
	movl	(%rdi), %edx
	movl	%edx, (%rsi)
	xorl	%eax, %eax
	ret

/* int uhca_safe_store32(uint32_t *dst, uint32_t value) */
	.globl	uhca_safe_store32
	.hidden	uhca_safe_store32
	.type	uhca_safe_store32, @function
uhca_safe_store32:
	movl	%esi, (%rdi)
	xorl	%eax, %eax
	ret

/* int uhca_safe_store8(uint8_t *dst, uint8_t value) */
	.globl	uhca_safe_store8
	.hidden	uhca_safe_store8
	.type	uhca_safe_store8, @function
uhca_safe_store8:
	movb	%sil, (%rdi)
	xorl	%eax, %eax
	ret

/* int uhca_safe_line_last_word(void *dst, const void *src): 64 bytes, the last 8 after the others and as one store. 0, or 1 on a fault. */
	.globl	uhca_safe_line_last_word
	.hidden	uhca_safe_line_last_word
	.type	uhca_safe_line_last_word, @function
uhca_safe_line_last_word:
	movups	(%rsi), %xmm0
	movups	16(%rsi), %xmm1
	movups	32(%rsi), %xmm2
	movq	48(%rsi), %rax
	movq	56(%rsi), %rdx
	movups	%xmm0, (%rdi)
	movups	%xmm1, 16(%rdi)
	movups	%xmm2, 32(%rdi)
	movq	%rax, 48(%rdi)
	movq	%rdx, 56(%rdi)
	xorl	%eax, %eax
	ret

/* int uhca_safe_cas64(uint64_t *dst, uint64_t *expected, uint64_t desired): 0 done, 2 different (*expected updated), 1 fault. */
	.globl	uhca_safe_cas64
	.hidden	uhca_safe_cas64
	.type	uhca_safe_cas64, @function
uhca_safe_cas64:
	movq	(%rsi), %rax
	lock cmpxchgq %rdx, (%rdi)
	jne	1f
	xorl	%eax, %eax
	ret
1:	movq	%rax, (%rsi)
	movl	$2, %eax
	ret

	.globl	uhca_safe_fault
	.hidden	uhca_safe_fault
uhca_safe_fault:
	movl	$1, %eax
	ret

	.globl	uhca_safecopy_end
	.hidden	uhca_safecopy_end
uhca_safecopy_end:

	.section .note.GNU-stack,"",@progbits
