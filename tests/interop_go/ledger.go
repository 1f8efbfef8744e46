package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ledger is a file of lines that several goroutines append to; a line is handed to the kernel before write returns.
type ledger struct {
	mutex sync.Mutex
	file  *os.File
}

func openLedger(directory, name string) (*ledger, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(directory, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	return &ledger{file: file}, err
}

// write ends the program where the line cannot be kept: what it did would not be in the books.
func (l *ledger) write(line string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	out := bufio.NewWriter(l.file)
	fmt.Fprintln(out, line)
	if err := out.Flush(); err != nil {
		panic(err)
	}
}

// nowNs is CLOCK_MONOTONIC, which all processes of a machine share.
func nowNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// kindOf reads PRODUCER-KIND-RUN-NUMBER (tests/interop_java/keys.py).
func kindOf(key string) string {
	parts := strings.Split(key, "-")
	if len(parts) != 4 {
		return "plain"
	}
	return parts[1]
}

// isRefused says whether a consumer refuses what was given back so often before.
func isRefused(key string, times int32) bool {
	kind := kindOf(key)
	if rest, found := strings.CutPrefix(kind, "again"); found {
		wanted, _ := strconv.Atoi(rest)
		return int(times) < wanted
	}
	return kind == "dead"
}

// kindAt is the kind of the message of that number.
func kindAt(number int64) string {
	switch number % kindsEach {
	case 8:
		return "again1"
	case 16:
		return "again2"
	case 24:
		return "dead"
	case 32:
		return fmt.Sprintf("late%d", 1+number/kindsEach%3)
	}
	return "plain"
}

// bodyOf is the key's text again and again.
func bodyOf(key string, size int) []byte {
	return []byte(strings.Repeat(key, size/len(key)+1)[:size])
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
