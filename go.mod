module github.com/kvpipe/kvpipe

go 1.26.8
