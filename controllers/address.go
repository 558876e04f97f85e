package controllers

import (
	"net"
	"strconv"
)

func address(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
