//go:build e2e && e2efull

package e2e

import "testing"

// TestSherman is what TestSMART is, with a B-link tree.
func TestSherman(t *testing.T) { shared(t, "Sherman", 3, 1, 2) }

// TestCHIME is what TestSMART is, with a B+ tree whose leaves are hash tables.
func TestCHIME(t *testing.T) { shared(t, "CHIME", 3, 1, 2) }
