package record

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
)

// memberHead is the length of a member.
const memberHead = 4

// AppendMember appends a plain record to a Group, which Append began.
func AppendMember(b []byte, op byte, epoch uint64, key, value []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(FixedBytes+len(key)+len(value)))
	return Append(b, op, epoch, key, value)
}

// MemberBytes is the length of a member of a Group, with its head.
func MemberBytes(key, value int) int { return memberHead + FixedBytes + key + value }

// Each visits r, or if it is a Group its members. index.ErrFormat: a member is not what it has to
// be. No member was visited then.
func (r *Record) Each(visit func(r Record)) error {
	if r.Op != Group {
		visit(*r)
		return nil
	}
	if err := r.members(func(Record) {}); err != nil {
		return err
	}
	return r.members(visit)
}

func (r *Record) members(visit func(r Record)) error {
	for b := r.Value; len(b) > 0; {
		if len(b) < memberHead || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-memberHead) {
			return fmt.Errorf("a member of a group goes beyond its redo record: %w", index.ErrFormat)
		}
		n := int(binary.LittleEndian.Uint32(b))
		var m Record
		if err := m.Decode(b[memberHead : memberHead+n]); err != nil {
			return err
		}
		if m.Op > Refer {
			return fmt.Errorf("a member of a group has the kind %d, and is not plain: %w", m.Op, index.ErrFormat)
		}
		visit(m)
		b = b[memberHead+n:]
	}
	return nil
}
