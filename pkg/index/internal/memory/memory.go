// Package memory has hints for caches that are large and of which an operation looks at a few
// lines: to the processor, which lines will be read next, and to the kernel, that small pages would
// cost a miss of the TLB with nearly each line. They change nothing but time.
package memory

// PageBytes is the size of a page that Free gives back: what caches count by. The kernel's may be
// larger; then Free gives less back.
const PageBytes = 4096
