
# The segments of a volume, as they are typed.
_baio_segments() {
    baio list "$1" 2>/dev/null |
        awk -v volume="$1" -v me="$(id -u)" 'NR > 1 { print volume "#" ($2 == me ? "" : $2 "/") $1 }'
}

# Words behind `#` and, in dd, behind `=`, at which bash parts what is typed; all else is made from the definition.
_baio_words() {
    local word=${COMP_WORDS[COMP_CWORD]} name="" operand before
    if [[ $word == "=" ]]; then
        name=${COMP_WORDS[COMP_CWORD - 1]}
        word=""
    elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
        name=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [[ $word == *"#"* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_baio_segments "${word%%#*}")" -- "$word")
    elif [[ ${COMP_WORDS[1]} == dd && -n $name ]]; then
        COMPREPLY=()
        before=${word%"${word##*,}"}
        for operand in OPERANDS; do
            [[ $operand == "$name=${word##*,}"?* ]] && COMPREPLY+=("$before${operand#*=}")
        done
    else
        _baio "$@"
    fi
}

complete -F _baio_words -o bashdefault -o default baio
