// Package crc computes CRC-32C of the short units that index nodes consist of. hash/crc32 is as
// fast on long ones, but costs several calls before it looks at the first byte.
package crc

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// table is the portable way. The result is hash/crc32's: crc32.Update(start, castagnoli, p).
func table(start uint32, p []byte) uint32 { return crc32.Update(start, castagnoli, p) }
