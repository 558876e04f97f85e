//env:real files are of the machine

package memserver

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/volumes"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// volumeFile is the name of the file with what a process stores of its volume (volumes.State), in
// the state directory. It is kept and lost together with the memory: a file of another run of the
// machine says nothing but how many processes the pod had.
//
//	offset  size  field
//	     0     8  magic "dmVolume"
//	     8     4  format version
//	    12     4  CRC-32C of what follows
//	    16     4  length of what follows
//	    20     -  storedVolume, as JSON
const (
	volumeFile    = "dmindex.volume"
	volumeMagic   = "dmVolume"
	volumeVersion = 1
	volumeHead    = 20
)

// storedVolume is what is stored. Only the state counts for who may answer.
type storedVolume struct {
	Boot   string              // of the run of the machine; zeroes = not known
	Pod    string              // by which views name this pod; empty = it was not told
	Copies []*rpcv1.VolumeCopy // where copies of the volume are
	State  volumes.State
}

// fileOfVolume is where it is stored: the path of a file; empty = nowhere.
type fileOfVolume string

func volumeFileIn(dir string) fileOfVolume {
	if dir == "" {
		return ""
	}
	return fileOfVolume(filepath.Join(dir, volumeFile))
}

// load returns what is stored; found is false if nothing is.
func (f fileOfVolume) load() (v storedVolume, found bool, err error) {
	if f == "" {
		return v, false, nil
	}
	b, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return v, false, nil
	}
	if err == nil {
		v, err = decodeVolume(b)
	}
	if err != nil {
		return v, false, fmt.Errorf("state of the volume %s: %w; without it nobody knows whether the memory beside it counts: if the volume has another copy, "+
			"or is to be lost, start again with empty data and state directories", string(f), err)
	}
	return v, true, nil
}

// save stores v in the place of what was stored. After an error either may be.
func (f fileOfVolume) save(v *storedVolume) error {
	if f == "" {
		return nil
	}
	b, err := encodeVolume(v)
	if err != nil {
		return err
	}
	temporary := string(f) + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, string(f)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(string(f)))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func encodeVolume(v *storedVolume) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, volumeHead+len(body)), volumeMagic...)
	b = binary.LittleEndian.AppendUint32(b, volumeVersion)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

func decodeVolume(b []byte) (v storedVolume, err error) {
	if len(b) < volumeHead || string(b[:8]) != volumeMagic {
		return v, fmt.Errorf("these %d bytes are no state of a volume", len(b))
	}
	if n := binary.LittleEndian.Uint32(b[8:]); n != volumeVersion {
		return v, fmt.Errorf("its format version is %d, this program has %d: run the program that wrote it", n, volumeVersion)
	}
	body := b[volumeHead:]
	if uint32(len(body)) != binary.LittleEndian.Uint32(b[16:]) || crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[12:]) {
		return v, errors.New("it is damaged")
	}
	return v, json.Unmarshal(body, &v)
}
