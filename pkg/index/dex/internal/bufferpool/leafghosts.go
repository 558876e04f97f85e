package bufferpool

// leafGhosts are the most used leaves of a shard that have no frame: sets of four, with a part of
// the hash in the upper 24 bits, and the uses in the lower 8. Guarded by the shard's lock.
type leafGhosts []uint32

const (
	ghostWays     = 4
	framesOfGhost = 8
)

func (g leafGhosts) set(hash uint64) []uint32 {
	// the first bits are the shard's
	i := hash << 4 >> 40 * uint64(len(g)/ghostWays) >> 24 * ghostWays
	return g[i : i+ghostWays]
}

// add makes a leaf that was used so often a ghost, if another one was not used more.
func (g leafGhosts) add(hash uint64, uses uint8) {
	if len(g) == 0 {
		return
	}
	s, least := g.set(hash), 0
	for i, w := range s {
		if w>>8 == uint32(hash&(1<<24-1)) {
			least = i
			break
		}
		if w&0xff < s[least]&0xff {
			least = i
		}
	}
	if w := s[least]; w&0xff <= uint32(uses) || w>>8 == uint32(hash&(1<<24-1)) {
		s[least] = uint32(hash&(1<<24-1))<<8 | uint32(uses)
	}
}

// remove reports whether the leaf was a ghost, and it is no more.
func (g leafGhosts) remove(hash uint64) bool {
	if len(g) == 0 {
		return false
	}
	s := g.set(hash)
	for i, w := range s {
		if w != 0 && w>>8 == uint32(hash&(1<<24-1)) {
			s[i] = 0
			return true
		}
	}
	return false
}

// halve halves the uses.
func (g leafGhosts) halve() {
	for i, w := range g {
		g[i] = w&^0xff | w&0xff/2
	}
}
