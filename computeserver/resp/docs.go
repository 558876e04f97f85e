package resp

import (
	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// cmdCommand is COMMAND and its subcommands COUNT, DOCS, GETKEYS, INFO and LIST.
func (c *conn) cmdCommand(args [][]byte) {
	switch {
	case len(args) == 1, isWord(args[1], "INFO"):
		names := CommandNames[:len(commands)]
		if len(args) > 2 {
			names = make([]string, len(args)-2)
			for i, name := range args[2:] {
				names[i] = string(name)
			}
		}
		c.out = redcon.AppendArray(c.out, len(names))
		c.tally.Count(count.OK)
		for _, name := range names {
			k := lookupCommand([]byte(name))
			if k == nil {
				c.out = c.appendNull(c.out)
				continue
			}
			c.out = redcon.AppendArray(c.out, 6)
			c.out = redcon.AppendBulkString(c.out, k.name)
			c.out = redcon.AppendInt(c.out, int64(k.arity))
			c.out = appendFlags(c.out, k)
			c.out = redcon.AppendInt(c.out, int64(k.keys.first))
			c.out = redcon.AppendInt(c.out, int64(k.keys.last))
			c.out = redcon.AppendInt(c.out, int64(k.keys.step))
		}
	case isWord(args[1], "COUNT"):
		c.replyInt(int64(len(commands)))
	case isWord(args[1], "LIST"):
		c.out = redcon.AppendArray(c.out, len(commands))
		c.tally.Count(count.OK)
		for _, name := range CommandNames[:len(commands)] {
			c.out = redcon.AppendBulkString(c.out, name)
		}
	case isWord(args[1], "DOCS"):
		named := CommandNames[:len(commands)]
		if len(args) > 2 {
			named = nil
			for _, name := range args[2:] {
				if k := lookupCommand(name); k != nil {
					named = append(named, k.name)
				}
			}
		}
		c.out = c.appendMap(c.out, len(named))
		c.tally.Count(count.OK)
		for _, name := range named {
			c.out = redcon.AppendBulkString(c.out, name)
			k, group := lookupCommand([]byte(name)), "server"
			if k.data {
				group = "generic"
			}
			c.out = c.appendMap(c.out, 2)
			c.out = appendPair(c.out, "summary", k.does)
			c.out = appendPair(c.out, "group", group) // HELP @GROUP of redis-cli needs it
		}
	case isWord(args[1], "GETKEYS") && len(args) < 4:
		c.replyError("ERR wrong number of arguments for 'command|getkeys' command")
	case isWord(args[1], "GETKEYS"):
		c.commandKeys(args[2:])
	default:
		c.replyError(unknownSubcommand(args[1], "COUNT, DOCS, GETKEYS, INFO, LIST"))
	}
}

// commandKeys is COMMAND GETKEYS: which arguments of a command are keys.
func (c *conn) commandKeys(args [][]byte) {
	k := lookupCommand(args[0])
	switch {
	case k == nil:
		c.replyError("ERR Invalid command specified")
	case k.keys.step == 0 && !k.counted && !k.paired:
		c.replyError("ERR The command has no key arguments")
	case !k.allowsArgs(len(args)):
		c.replyError("ERR Invalid number of arguments specified for command")
	default:
		var keys [][]byte
		k.eachKey(args, func(key []byte) bool { keys = append(keys, key); return true })
		c.out = redcon.AppendArray(c.out, len(keys))
		c.tally.Count(count.OK)
		for _, key := range keys {
			c.out = redcon.AppendBulk(c.out, key)
		}
	}
}

// appendFlags appends what Redis calls the flags of a command.
func appendFlags(b []byte, k *command) []byte {
	switch {
	case !k.data:
		return redcon.AppendArray(b, 0)
	case k.kind.Known() && k.is.Changes, k.needs == toChangeAll:
		return redcon.AppendString(redcon.AppendArray(b, 1), "write")
	}
	return redcon.AppendString(redcon.AppendArray(b, 1), "readonly")
}
