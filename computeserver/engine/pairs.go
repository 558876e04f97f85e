package engine

import "github.com/dmindex/dmindex/computeserver/expiry"

// pairs are copies of keys and values, one after the other.
type pairs struct {
	data  []byte
	ends  []int // of each key and each value
	marks []expiry.Mark
}

func (p *pairs) clear()   { p.data, p.ends, p.marks = p.data[:0], p.ends[:0], p.marks[:0] }
func (p *pairs) len() int { return len(p.marks) }

// truncate leaves the first n.
func (p *pairs) truncate(n int) { p.ends, p.marks = p.ends[:2*n], p.marks[:n] }

// pairsTogether and bytesTogether are how much room is made at once for pairs that are expected.
const (
	pairsTogether = 128
	bytesTogether = 16 << 10
)

// expect makes room for pairs as long as the first one, of at most so many, unless it was made.
func (p *pairs) expect(most, bytes int) {
	if most = min(most, pairsTogether); cap(p.marks) == 0 {
		p.marks, p.ends = make([]expiry.Mark, 0, most), make([]int, 0, 2*most)
		p.data = make([]byte, 0, min(most*bytes, max(bytes, bytesTogether)))
	}
}

func (p *pairs) add(key, value []byte, is expiry.Mark) {
	p.marks = append(p.marks, is)
	p.data = append(p.data, key...)
	p.ends = append(p.ends, len(p.data))
	p.data = append(p.data, value...)
	p.ends = append(p.ends, len(p.data))
}

func (p *pairs) pair(i int) (key, value []byte, is expiry.Mark) {
	begin := 0
	if i > 0 {
		begin = p.ends[2*i-1]
	}
	middle, end := p.ends[2*i], p.ends[2*i+1]
	return p.data[begin:middle], p.data[middle:end], p.marks[i]
}
