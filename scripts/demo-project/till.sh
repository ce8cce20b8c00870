#!/bin/sh
# Reads one price in cents a line; empty lines and lines that begin with # do not count.
sum=0
while read -r price; do
  case $price in '' | '#'*) continue ;; esac
  sum=$((sum + price))
done
printf '%d.%02d\n' $((sum / 100)) $((sum % 100))
