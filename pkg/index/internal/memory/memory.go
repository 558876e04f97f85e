// Package memory has hints for caches that are large and of which an operation looks at a few
// lines: to the processor, which lines will be read next, and to the kernel, that small pages would
// cost a miss of the TLB with nearly each line. They change nothing but time.
package memory
