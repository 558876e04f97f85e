package engine

// pairs are copies of keys and values, one after the other.
type pairs struct {
	data      []byte
	ends      []int // of each key and each value
	deadlines []int64
}

func (p *pairs) clear()   { p.data, p.ends, p.deadlines = p.data[:0], p.ends[:0], p.deadlines[:0] }
func (p *pairs) len() int { return len(p.deadlines) }

// cut leaves the first n.
func (p *pairs) cut(n int) { p.ends, p.deadlines = p.ends[:2*n], p.deadlines[:n] }

func (p *pairs) add(key, value []byte, deadline int64) {
	p.deadlines = append(p.deadlines, deadline)
	p.data = append(p.data, key...)
	p.ends = append(p.ends, len(p.data))
	p.data = append(p.data, value...)
	p.ends = append(p.ends, len(p.data))
}

func (p *pairs) pair(i int) (key, value []byte, deadline int64) {
	begin := 0
	if i > 0 {
		begin = p.ends[2*i-1]
	}
	middle, end := p.ends[2*i], p.ends[2*i+1]
	return p.data[begin:middle], p.data[middle:end], p.deadlines[i]
}
