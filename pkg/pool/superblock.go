package pool

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// FormatVersion is the version of everything that this program writes into disaggregated memory.
// Another one is refused. Version 4: chunks begin with a table of their slabs (slab.go). A client
// of version 3 would take the table for nodes. Version 5: records of DEX's log may have a
// condition, or take another one back (pkg/index/dex/internal/record). A client of version 4 cannot
// replay them. Version 6: a leaf of SMART has all of its key before its cells
// (pkg/index/smart/leaf.go). A client of version 5 would look for the rest behind them. Version 7:
// an index has a secret, under which CHIME hashes keys (pkg/index/chime/layout.go). A client of
// version 6 would look for them elsewhere. Version 8: entries and nodes have sums under the secret
// (pkg/sum). For a client of version 7, which knows CRCs, none of them verifies.
const FormatVersion = 8

// The superblock is 4 KiB at a place on the index's home server that the server knows:
//
//	offset  size  field
//	0       8     magic "DMINDEX\x00"
//	8       4     format version
//	12      4     length of the body
//	16      4     CRC-32C of the body
//	64      8     root: address of the root node; 0 until the index is made; changed atomically
//	72      16    secret: two words, each 0 until a creator swaps a random number for it
//	128     ...   body: JSON of Superblock
//
// All integers are little-endian. A creator WRITEs header and body and then swaps the root from 0.
// Creators of the same index write the same bytes, so it does not matter whose stand; the root is
// decided by the swap, and by G1 whoever sees a root sees header and body.
//
// The secret is not the same with each creator, so it is decided by swaps, too, of each word by
// itself, before the swap of the root. A word that is not 0 never changes: whoever sees a root sees
// the secret that all others see, whichever creators its words are from. Clients of the index know
// it, and so does whoever may read all of the index's memory. Users of the index do not.
const (
	superblockBytes  = 4096
	superblockRoot   = 64
	superblockSecret = 72
	superblockBody   = 128
	superblockHeader = 20
)

var superblockMagic = [8]byte{'D', 'M', 'I', 'N', 'D', 'E', 'X', 0}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Superblock says what index this is: written once, when it is made.
type Superblock struct {
	Identity string          `json:"identity"`
	Design   string          `json:"design"`
	Options  json.RawMessage `json:"options"` // the design's own

	// Secret is random and known to the index's clients only; its words are not 0.
	Secret [2]uint64 `json:"-"`
}

// marshal encodes sb as header and body.
func (sb *Superblock) marshal() (header, body []byte, err error) {
	body, err = json.Marshal(sb)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the superblock: %w", err)
	}
	if len(body) > superblockBytes-superblockBody {
		return nil, nil, fmt.Errorf("encode the superblock: %d bytes, %d fit", len(body), superblockBytes-superblockBody)
	}
	header = make([]byte, superblockHeader)
	copy(header, superblockMagic[:])
	binary.LittleEndian.PutUint32(header[8:], FormatVersion)
	binary.LittleEndian.PutUint32(header[12:], uint32(len(body)))
	binary.LittleEndian.PutUint32(header[16:], crc32.Checksum(body, castagnoli))
	return header, body, nil
}

// unmarshalSuperblock decodes the 4 KiB of a superblock whose root is set.
func unmarshalSuperblock(b []byte) (*Superblock, error) {
	if [8]byte(b[:8]) != superblockMagic {
		return nil, fmt.Errorf("superblock begins with %x, which is not dmindex: %w", b[:8], ErrFormat)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != FormatVersion {
		return nil, fmt.Errorf("index is of format version %d, this program reads version %d: %w", v, FormatVersion, ErrFormat)
	}
	n := binary.LittleEndian.Uint32(b[12:])
	if n > superblockBytes-superblockBody {
		return nil, fmt.Errorf("superblock body of %d bytes: %w", n, ErrFormat)
	}
	body := b[superblockBody : superblockBody+n]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[16:]) {
		return nil, fmt.Errorf("superblock does not match its checksum: %w", ErrFormat)
	}
	var sb Superblock
	if err := json.Unmarshal(body, &sb); err != nil {
		return nil, fmt.Errorf("superblock: %w: %w", err, ErrFormat)
	}
	for i := range sb.Secret {
		if sb.Secret[i] = binary.LittleEndian.Uint64(b[superblockSecret+8*i:]); sb.Secret[i] == 0 {
			return nil, fmt.Errorf("superblock has a root and no secret: %w", ErrFormat)
		}
	}
	return &sb, nil
}

func (s *Session) superblockAddr(offset uint64) Addr {
	home := s.pool.servers()[0]
	return NewAddr(home.id, home.grant.Superblock+offset)
}

// superblockRoom is a buffer of the session for a superblock. Whoever opens an index reads one,
// makes it, and reads it again, each time after the requests before.
func (s *Session) superblockRoom() (b []byte, err error) {
	if s.superblock == nil {
		s.superblock, err = s.Buffer(superblockBytes)
	}
	return s.superblock, err
}

// ReadSuperblock reads superblock and root. A root of Nil, and no superblock, means that the index
// was not made yet. The error wraps ErrFormat if the superblock is of another version, of another
// index, or damaged. It allocates.
func (s *Session) ReadSuperblock() (*Superblock, Addr, error) {
	buf, err := s.superblockRoom()
	if err != nil {
		return nil, Nil, err
	}
	root, err := s.Root()
	if err != nil || root == Nil {
		return nil, Nil, err
	}
	s.Read(s.superblockAddr(0), buf)
	if err := s.Post(); err != nil {
		return nil, Nil, err
	}
	sb, err := unmarshalSuperblock(buf)
	if err != nil {
		return nil, Nil, err
	}
	if sb.Identity != s.pool.identity {
		return nil, Nil, fmt.Errorf("superblock is of index %q, not %q: %w", sb.Identity, s.pool.identity, ErrFormat)
	}
	return sb, root, nil
}

// DecideSecret returns the secret of an index that may not be made yet: of each word the creator's
// that was the first to swap it. A session asks once, since no word ever changes again.
func (s *Session) DecideSecret() (secret [2]uint64, err error) {
	for i, word := range s.secret {
		if word != 0 {
			continue
		}
		word = max(1, s.pool.env.Uint64())
		found, err := s.SwapWord(s.superblockAddr(superblockSecret+8*uint64(i)), 0, word)
		if err != nil {
			return s.secret, err
		}
		if found != 0 {
			word = found
		}
		s.secret[i] = word
	}
	return s.secret, nil
}

// CreateSuperblock makes the index with a root that is complete, and returns the root that counts:
// another client may have been faster. It allocates. A root that depends on the secret is made
// after DecideSecret.
func (s *Session) CreateSuperblock(design string, options json.RawMessage, root Addr) (Addr, error) {
	sb := &Superblock{Identity: s.pool.identity, Design: design, Options: options}
	header, body, err := sb.marshal()
	if err != nil {
		return Nil, err
	}
	buf, err := s.superblockRoom()
	if err != nil {
		return Nil, err
	}
	if _, err := s.DecideSecret(); err != nil {
		return Nil, err
	}
	s.write(s.superblockAddr(0), buf[:copy(buf, header)])
	s.write(s.superblockAddr(superblockBody), buf[superblockBody:superblockBody+copy(buf[superblockBody:], body)])
	won, old, err := s.SwapRoot(Nil, root)
	if err != nil || !won {
		return old, err
	}
	return root, nil
}

// rootWord is where the root is.
func (p *Pool) rootWord() Addr {
	home := p.servers()[0]
	return NewAddr(home.id, home.grant.Superblock+superblockRoot)
}

// The root word has a lock like a node, on its own server. Whoever changes the root of an index
// that was made has that lock. So a client that is fenced on the home server changes the root no
// more, and while one is not, nobody else does: the word never goes back to what it was behind the
// back of a client that is about to swap it.

// rootRead is how much of the superblock is read under the lock of the root word: b of LockRoot is
// room for repair, too.
const rootRead = 512

// LockRoot acquires the lock of the root word, as Lock does, and says what the word is. b is a
// buffer of the session, of a node's size.
func (s *Session) LockRoot(b []byte) (Addr, error) {
	b = b[:min(len(b), rootRead)]
	if err := s.Lock(s.pool.rootWord(), b); err != nil {
		return Nil, err
	}
	return Addr(binary.LittleEndian.Uint64(b)), nil
}

// TryLockRoot is LockRoot as TryLock is Lock.
func (s *Session) TryLockRoot(b []byte) (root Addr, ok bool, err error) {
	b = b[:min(len(b), rootRead)]
	if ok, err = s.TryLock(s.pool.rootWord(), b); err != nil || !ok {
		return Nil, false, err
	}
	return Addr(binary.LittleEndian.Uint64(b)), true, nil
}

// SharesRootLock reports whether the lock of the node at a is that of the root word, too.
func (p *Pool) SharesRootLock(a Addr) bool {
	word, err := p.lockOf(p.rootWord())
	node, err2 := p.lockOf(a)
	return err == nil && err2 == nil && word.server == node.server && word.index == node.index
}

// Root reads the address of the root node: one round trip.
func (s *Session) Root() (Addr, error) {
	s.Read(s.superblockAddr(superblockRoot), s.word)
	if err := s.Post(); err != nil {
		return Nil, err
	}
	return Addr(binary.LittleEndian.Uint64(s.word)), nil
}

// SwapRoot changes the root from one node to another, behind what is queued, in one round trip. If
// it is another one by now, won is false and old is which.
func (s *Session) SwapRoot(from, to Addr) (won bool, old Addr, err error) {
	a := s.superblockAddr(superblockRoot)
	if err := s.postOthers(0); err != nil {
		return false, Nil, err
	}
	found, err := s.SwapWord(a, uint64(from), uint64(to))
	return err == nil && Addr(found) == from, Addr(found), err
}

// SwapWord changes the word at a, a multiple of 8, from one value to another, in one round trip
// with what is queued. It returns what it found.
func (s *Session) SwapWord(a Addr, from, to uint64) (found uint64, err error) {
	s.queue(a, verbs.Request{Op: verbs.CompareSwap, Remote: a.Offset(), Local: s.word, Compare: from, Swap: to})
	if err := s.Post(); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(s.word), nil
}
