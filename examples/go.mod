module github.com/plimsoll-go/plimsoll/examples

go 1.26.0

replace github.com/plimsoll-go/plimsoll => ../
