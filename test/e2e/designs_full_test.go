//go:build e2e && e2efull

package e2e

import "testing"

// TestSherman is what TestSMART is, with a B-link tree.
func TestSherman(t *testing.T) { shared(t, "Sherman") }
