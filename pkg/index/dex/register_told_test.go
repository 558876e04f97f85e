package dex_test

import "github.com/dmindex/dmindex/pkg/index"

// toldSession counts how often modifications are told of a pair.
type toldSession struct {
	index.Session
	sum *registersCounts
}

// Modify implements index.Session.
func (s toldSession) Modify(key []byte, change index.Change) error {
	told := 0
	defer func() {
		s.sum.told += told
		s.sum.toldAgain += max(0, told-1)
	}()
	return s.Session.Modify(key, func(old []byte, found bool) ([]byte, index.Action) {
		told++
		return change(old, found)
	})
}
