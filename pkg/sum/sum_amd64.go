package sum

// fewBytes: a longer block is worth a call.
const fewBytes = 96

// pairs is NH of the n pairs of words from p on, n > 0, with the words of the key from k on.
//
//go:noescape
func pairs(k *uint64, p *byte, n int) (low, high uint64)
