# Words behind `#` are the segments of a volume; all else is made from the definition.
_baio() {
    local typed=${words[CURRENT]%%'#'*}
    if [[ ${words[CURRENT]} != *'#'* ]]; then
        _baio_made "$@"
        return
    fi
    local -a found
    found=(${(f)"$(baio list ${typed#*=} 2>/dev/null |
        awk -v before=$typed -v me=$(id -u) 'NR > 1 { print before "#" ($2 == me ? "" : $2 "/") $1 }')"})
    compadd -a found
}
