package crc

import "golang.org/x/sys/cpu"

var fast = cpu.X86.HasSSE42

// update uses the CRC32 instruction. start and result are not inverted, as hash/crc32's are.
//
//go:noescape
func update(start uint32, p *byte, n int) uint32

// Sum continues the CRC-32C start with p.
func Sum(start uint32, p []byte) uint32 {
	if !fast || len(p) > 1024 { // hash/crc32 runs three streams at once on long ones
		return table(start, p)
	}
	if len(p) == 0 {
		return start
	}
	return ^update(^start, &p[0], len(p))
}
