//go:build invariants || race

package invariants

// Enabled says that checks are compiled in: in every build with the invariants tag or the race
// detector.
const Enabled = true
