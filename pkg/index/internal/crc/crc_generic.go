//go:build !amd64

package crc

// Sum continues the CRC-32C start with p.
func Sum(start uint32, p []byte) uint32 { return table(start, p) }
