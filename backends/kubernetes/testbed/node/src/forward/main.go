// forward ADDRESS TARGET passes TCP connections to ADDRESS on to TARGET.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	for err == nil {
		var caller net.Conn
		if caller, err = listener.Accept(); err == nil {
			go pass(caller.(*net.TCPConn), os.Args[2])
		}
	}
	fmt.Println("forward:", err)
	os.Exit(1)
}

func pass(caller *net.TCPConn, target string) {
	defer caller.Close()
	connection, err := net.Dial("tcp", target)
	if err != nil {
		fmt.Println("forward:", err)
		return
	}
	called := connection.(*net.TCPConn)
	defer called.Close()
	ended := make(chan struct{})
	go func() {
		io.Copy(called, caller)
		called.CloseWrite()
		close(ended)
	}()
	io.Copy(caller, called)
	caller.CloseWrite()
	<-ended
}
