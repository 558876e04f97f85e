package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// directory is that of a server.
func (p *Persist) directory(id int) string {
	return filepath.Join(p.Dir, "memory-"+strconv.Itoa(id))
}

// check refuses a directory of another number of servers: the index lies on all of them.
func (p *Persist) check(servers int) error {
	there := 0
	for ; ; there++ {
		if _, err := os.Stat(p.directory(there + 1)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	if there != 0 && there != servers {
		return fmt.Errorf("directory %s has the content of %d memory servers, and there are to be %d: start as many as before, or give another directory", p.Dir, there, servers)
	}
	return nil
}
