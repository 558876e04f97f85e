//go:build race

package shm_test

// rounds of a litmus test: under the race detector each takes long and the detector's own work
// orders much.
const rounds = 5000
