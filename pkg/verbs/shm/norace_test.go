//go:build !race

package shm_test

// rounds of a litmus test: a store buffer is a matter of nanoseconds, so it takes many to catch
// one.
const rounds = 100000
