// Package seqlock stores words of 8 bytes that others load at the same moment.
//
// It is for what a version guards (optimistic lock coupling, a sequence lock): who changes the
// words makes the version odd before, by an atomic operation, and even afterwards, by another one;
// who loads them compares the version before and after. Such stores need no order among each
// other. What they need is this: each word is stored whole, none before the first atomic operation,
// and none after the second.
//
// atomic.StoreUint64 gives more, and on amd64 it takes some 20 cycles for it: it waits until all
// processors see the word.
package seqlock
